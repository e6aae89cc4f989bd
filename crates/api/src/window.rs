//! Windows of a desk, as its window manager knows them.
