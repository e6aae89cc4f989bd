//! Windows on a real display.
