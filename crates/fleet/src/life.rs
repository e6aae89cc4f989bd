//! Idleness and the policies that follow from it.

/// A desk is busy while this lives.
pub struct Busy {}
