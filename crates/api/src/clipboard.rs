//! The desk's clipboard.
