"""`regard serve`: the page and the HTTP APIs, on loopback unless told otherwise.

A request goes through the guards (who may ask, how much, how slowly), is checked against its shape, and waits for its
model's engine, one thread that decodes what has gathered together. FastAPI and uvicorn are imported here and nowhere
else.
"""
