"""The question before a deletion."""

from nicegui import ui


async def is_sure(noun: str, question: str, effect: str) -> bool:
    """Asks before a deletion; `noun` names the dialog for screen readers."""
    with ui.dialog() as dialog, ui.card():
        dialog.props["aria-label"] = f"Delete {noun}"
        ui.label(question).classes("text-lg es-long")
        ui.label(effect)
        with ui.row():
            ui.button("Delete", on_click=lambda: dialog.submit(True)).props("unelevated no-caps color=negative")
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
    sure = bool(await dialog)
    dialog.delete()
    return sure
