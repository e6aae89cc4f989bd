//! Accessibility: the tree of a desk's programs, searching it, acting on it.
