//! What each call promises when many come at once.
