"""The schema, revision by revision; run_migrations.py applies them."""
