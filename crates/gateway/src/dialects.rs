//! Dialects: the words of other makers' clients, translated to calls of the fleet and of desks.
//!
//! A dialect translates; it never implements. What a client of another maker needs and a desk can't do yet is added to the desk,
//! in the desk's own words.

pub(crate) mod e2b;
