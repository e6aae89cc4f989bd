//! What is promised when something breaks.
