"""Why did this fire run, not run, or run late? explainer.py decides, rows.py tells each attempt, history.py reads."""
