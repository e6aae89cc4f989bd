//! Desks of an ordinary user.
