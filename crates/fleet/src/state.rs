//! The state machine of a desk.
