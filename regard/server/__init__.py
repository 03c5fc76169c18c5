"""`regard serve`: the web page and the HTTP APIs, on loopback by default.

A request passes the guards (host, origin, token, size, speed), is validated against its schema and queued for its
model's engine, a thread that decodes queued requests in batches. FastAPI and uvicorn are imported only in this package.
"""
