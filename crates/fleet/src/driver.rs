//! One driver per desk: takes its steps in order, writes each down first.
