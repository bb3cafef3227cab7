"""The HTTP API: FastAPI under /api/v3, tokens and roles, problem+json. Start reading at app.py (`create_app`).

The dashboard is mounted on the same app; it uses auth/ for authentication and `app.state.parts` for everything else.
"""
