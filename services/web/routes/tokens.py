"""/api/v3/tokens: named API tokens."""

from services.web.auth.guard import Admin
from services.web.problems import not_found
from services.web.routing import API, PartsOf, router
from services.web.schemas.system import NewTokenIn, NewTokenOut, TokenList, TokenOut

tokens = router(f"{API}/tokens", "tokens")


@tokens.get("")
def list_tokens(parts: PartsOf, who: Admin) -> TokenList:
    """All tokens, newest first, without their secrets."""
    return TokenList(items=[TokenOut.model_validate(record) for record in parts.authenticator.tokens.list()])


@tokens.post("", status_code=201)
def create_token(body: NewTokenIn, parts: PartsOf, who: Admin) -> NewTokenOut:
    """Create a token. Only this response contains it."""
    made = parts.authenticator.tokens.create(body.name, body.role, who.actor, body.expires_at)
    return NewTokenOut(**TokenOut.model_validate(made.record).model_dump(), token=made.text)


@tokens.delete("/{token_id}", status_code=204)
def revoke_token(token_id: str, parts: PartsOf, who: Admin) -> None:
    """Revoke a token by id or name. The token and its browser sessions become invalid at once."""
    if parts.authenticator.tokens.revoke(token_id, who.actor) is None:
        raise not_found("active token with this id or name")
