# shellcheck shell=bash
# What TAB offers behind ./ladder: words, stages and flags. For bash, and for zsh by its bashcompinit:
#   source harness/completion.sh          in a clone, or by its path from ~/.bashrc or ~/.zshrc
if [[ -n ${ZSH_VERSION:-} ]]; then
  autoload -Uz compinit bashcompinit
  compinit
  bashcompinit
fi

_flash_ladder() {
  local typed=${COMP_WORDS[COMP_CWORD]} word='' root build program offered=''
  root=$(dirname "$(readlink -f "${COMP_WORDS[0]/#\~/$HOME}")")
  build=${LADDER_BUILD:-$root/build}
  if ((COMP_CWORD > 1)); then word=${COMP_WORDS[1]}; fi
  program=$build/ladder
  if [[ ! -x $program ]]; then program=$build/rungs/rung_all; fi
  if [[ $typed == -* && -x $program ]]; then
    case $word in
      learn | grade | card | test | docs | build | help) ;;
      *) offered=$("$program" "${word:---help}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u) ;;
    esac
  else
    case $word in
      '') offered=$(sed -n 's/^readonly words=(\(.*\))$/\1/p' "$root/ladder") ;;
      learn) offered='list start check hint reset solution board time' ;;
      build) offered='all ladder' ;;
      check | bench | compare | explain | list | card) offered=$(_flash_ladder_stages "$root") ;;
      *) ;; # files
    esac
  fi
  # shellcheck disable=SC2207 # words without spaces
  COMPREPLY=($(compgen -W "$offered" -- "$typed"))
}

_flash_ladder_stages() { # ROOT
  sh -c 'cd "$1" && for file in */stage.cu */*/stage.cu; do case $file in build* | work*) ;; *) basename "${file%/stage.cu}" ;; esac; done' - "$1"
}

complete -o default -F _flash_ladder ladder ./ladder
