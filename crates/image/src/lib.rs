//! What desks are made of: templates and root file systems.
