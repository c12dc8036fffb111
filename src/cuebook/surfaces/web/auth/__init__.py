"""Authentication and authorization of the web app: sessions, and the guard of every endpoint."""
