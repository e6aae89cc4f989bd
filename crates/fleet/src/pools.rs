//! Desks kept ready.
