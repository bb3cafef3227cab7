"""The HTTP API: FastAPI under /api/v3, tokens and roles, problem+json. Start reading at app.py (`create_app`).

A dashboard is mounted on the same app; it finds who is asking in auth/ and everything else in `app.state.parts`.
"""
