//! Desks in namespaces of their own on this machine, without any daemon.
