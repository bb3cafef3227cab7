"""Authentication and authorization: API tokens, JWTs and browser sessions become an `Identity` with a role.

Start reading at authenticator.py; guard.py enforces the access rule of every route.
"""
