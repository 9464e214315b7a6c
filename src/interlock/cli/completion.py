"""completion: scripts for the shells, made from the commands' own options."""

from __future__ import annotations

import importlib

from . import COMMANDS as ALL
from .options import Call, Parser, parser

BASH = """\
_interlock() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} == -- ]]; then
            _command_offset $((i + 1)) 2>/dev/null || COMPREPLY=($(compgen -c -- "$word"))
            return
        fi
    done
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
}}
complete -F _interlock interlock
"""
ZSH = """\
#compdef interlock
_interlock() {{
    local -a commands=({commands})
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local dashes=${{words[(i)--]}}
    if ((dashes < CURRENT)); then
        shift $dashes words
        ((CURRENT -= dashes))
        _normal
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
}}
compdef _interlock interlock
"""


def options_of(name: str) -> list[str]:
    """What can be said behind a command."""
    make_parser = importlib.import_module(f".{ALL[name][0]}", __package__).COMMANDS[name][0]
    words: list[str] = []
    for action in make_parser()._actions:
        if action.help != "==SUPPRESS==":
            words += action.option_strings[-1:]
        if action.choices and not action.option_strings:
            words += action.choices
    return words


def bash() -> str:
    line = '        {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
    cases = (line.format(name=name, words=" ".join(options_of(name))) for name in ALL)
    return BASH.format(commands=" ".join(ALL), cases="\n".join(cases))


def zsh() -> str:
    described = " ".join(f"'{name}:{summary}'" for name, (_, summary) in ALL.items())
    cases = (f"        {name}) compadd -- {' '.join(options_of(name))} ;;" for name in ALL)
    return ZSH.format(commands=described, cases="\n".join(cases))


def fish() -> str:
    lines = ["complete -c interlock -f"]
    for name, (_, summary) in ALL.items():
        lines.append(f"complete -c interlock -n __fish_use_subcommand -a {name} -d '{summary}'")
        for word in options_of(name):
            say = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c interlock -n '__fish_seen_subcommand_from {name}' {say}")
    return "\n".join(lines) + "\n"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def _completion() -> Parser:
    made = parser(
        "completion",
        "print a completion script",
        '  eval "$(interlock completion bash)"                    in ~/.bashrc\n'
        '  eval "$(interlock completion zsh)"                     in ~/.zshrc\n'
        "  interlock completion fish > ~/.config/fish/completions/interlock.fish",
    )
    made.add_argument("shell", choices=SHELLS, metavar="bash|zsh|fish")
    return made


def _call_completion(call: Call) -> int:
    print(SHELLS[call.shell](), end="")
    return 0


COMMANDS = {"completion": (_completion, _call_completion)}
