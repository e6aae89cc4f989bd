//! Terminals (PTYs) of a desk.
