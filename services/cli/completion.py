"""`manage.py completion`: the tab completion script for bash or zsh.

Typer knows the candidates, but its own scripts complete only programs on the PATH. These complete `python manage.py …`
and `./manage.py`, and in an installation its command.
"""

import re
from enum import StrEnum
from typing import Annotated

import typer

from services.cli.output import AsJson, print_json
from services.wording.commands import as_called_here

# The words before the program (python and its options) are dropped: Typer counts from the program's name.
BASH = """\
FUNCTION() {
  local at IFS=$'\\n'
  for ((at = 0; at < COMP_CWORD; at++)); do
    [[ ${COMP_WORDS[at]} == PROGRAM || ${COMP_WORDS[at]} == */PROGRAM ]] && break
  done
  ((at < COMP_CWORD)) || return 0
  COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]:at}" COMP_CWORD=$((COMP_CWORD - at)) \\
    VARIABLE=complete_bash "${COMP_WORDS[@]:0:at+1}" 2>/dev/null))
}
complete -o default -F FUNCTION CALLED
"""

ZSH = """\
FUNCTION() {
  local at=${words[(i)(*/|)PROGRAM]}
  if (( at >= CURRENT )); then _files; return; fi
  eval "$(env _TYPER_COMPLETE_ARGS="${words[at,CURRENT]}" VARIABLE=complete_zsh \\
    "${(@)words[1,at]}" 2>/dev/null)"
}
compdef FUNCTION CALLED
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
    script = _script({Shell.BASH: BASH, Shell.ZSH: ZSH}[shell])
    print_json({"shell": shell, "script": script}) if as_json else typer.echo(script, nl=False)


def _script(template: str) -> str:
    program = as_called_here("manage.py")
    words = {
        "FUNCTION": "_manage_py" if program == "manage.py" else "_enhanced_scheduler",
        "CALLED": "python python3 manage.py" if program == "manage.py" else program,
        "VARIABLE": f"_{program}_COMPLETE".replace("-", "_").upper(),  # as Typer derives it
        "PROGRAM": program,
    }
    return re.sub("|".join(words), lambda found: words[found[0]], template)
