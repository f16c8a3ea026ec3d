"""The four simulator endpoints written the plain way: FastAPI and one SQLite file. What Cascade is measured beside."""
