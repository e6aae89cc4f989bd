//! Programs that run in a desk.
