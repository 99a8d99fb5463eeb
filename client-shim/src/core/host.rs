//! What a device asks of the application.
