"""/api/docs: the API reference for people."""

from fastapi import Request
from fastapi.responses import HTMLResponse

from services.web.auth.guard import Anybody
from services.web.docs_page import CONTENT_POLICY, docs_page
from services.web.routing import router

docs = router("/api", "docs")


@docs.get("/docs", response_class=HTMLResponse, include_in_schema=False)
def read_docs(request: Request, everybody: Anybody) -> HTMLResponse:
    return HTMLResponse(docs_page(request.app.openapi()), headers={"Content-Security-Policy": CONTENT_POLICY})
