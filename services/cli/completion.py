"""`manage.py completion`: the tab completion script for bash or zsh.

Typer knows the candidates, but its own scripts complete only programs on the PATH. These complete `python manage.py …`
and `./manage.py`.
"""

from enum import StrEnum
from typing import Annotated

import typer

from services.cli.output import AsJson, print_json

# The words before manage.py (python and its options) are dropped: Typer counts from the program's name.
BASH = """\
_manage_py() {
  local at IFS=$'\\n'
  for ((at = 0; at < COMP_CWORD; at++)); do
    [[ ${COMP_WORDS[at]} == manage.py || ${COMP_WORDS[at]} == */manage.py ]] && break
  done
  ((at < COMP_CWORD)) || return 0
  COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]:at}" COMP_CWORD=$((COMP_CWORD - at)) \\
    _MANAGE.PY_COMPLETE=complete_bash "${COMP_WORDS[@]:0:at+1}" 2>/dev/null))
}
complete -o default -F _manage_py python python3 manage.py
"""

ZSH = """\
_manage_py() {
  local at=${words[(i)(*/|)manage.py]}
  if (( at >= CURRENT )); then _files; return; fi
  eval "$(env _TYPER_COMPLETE_ARGS="${words[at,CURRENT]}" _MANAGE.PY_COMPLETE=complete_zsh \\
    "${(@)words[1,at]}" 2>/dev/null)"
}
compdef _manage_py python python3 manage.py
"""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash or zsh")],
    as_json: AsJson = False,
) -> None:
    """Print the script for tab completion of `python manage.py …` in your shell.

    Examples:

      source <(python manage.py completion bash)

      manage.py completion zsh > completion.zsh
    """
    script = {Shell.BASH: BASH, Shell.ZSH: ZSH}[shell]
    print_json({"shell": shell, "script": script}) if as_json else typer.echo(script, nl=False)
