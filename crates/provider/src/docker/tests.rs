//! With a real Engine.
