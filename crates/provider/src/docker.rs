//! Desks as containers, through the Docker Engine API.
