"""How long the address of a web page may be, for whoever accepts, follows or stores one."""

MAX_PAGE_ADDRESS = 2048  # characters; longer ones are not real pages
