"""What travels over the wire, one file per noun. Input is judged by the services themselves, so that every door says
the same; these models only read and describe it.
"""
