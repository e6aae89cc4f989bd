//! Pictures of the screen and what changes on it.
