# shellcheck shell=bash
# For scripts that source it: which stage is meant, by the names that the program takes (find_stage in harness/options.cpp).

# Prints every stage's directory below ROOT, in the ladder's order.
stage_directories() { # ROOT
  local LC_ALL=C file # 00a_ stands before 00ab_, whatever the locale
  for file in "$1"/[0-9][0-9]*_*/stage.cu; do
    file=${file%/stage.cu}
    if [[ -d $file ]]; then printf '%s\n' "${file##*/}"; fi
  done
}

# Prints the directory of the stage that 3, 03, kvpipe, 03_kvpipe or 03_kvpipe/ names.
stage_called() { # ROOT NAME
  local name=${2,,} stage
  while [[ $name == */ ]]; do name=${name%/}; done
  if [[ $name =~ ^[0-9][a-z]?[a-z]?$ ]]; then name=0$name; fi
  while IFS= read -r stage; do
    if [[ $name == "$stage" || $name == "${stage%%_*}" || $name == "${stage#*_}" ]]; then
      printf '%s\n' "$stage"
      return
    fi
  done < <(stage_directories "$1")
  return 1
}
