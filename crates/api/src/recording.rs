//! Films of the screen.
