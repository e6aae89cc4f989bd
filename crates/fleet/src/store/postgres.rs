//! The store in PostgreSQL.
