"""Who is asking, and what they may do: API tokens, JWTs and browser sessions, all turned into an `Identity`.

Start reading at authenticator.py; guard.py holds every route to its rule.
"""
