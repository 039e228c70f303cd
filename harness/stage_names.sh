# shellcheck shell=bash
# For scripts that source it, before anything is built: which stage is meant, by the names that the program takes
# (find_stage in harness/verbs/options.cpp). A stage is a directory with a stage.cu, at the top or in a part, as
# CMakeLists.txt finds them.

# Prints every stage's directory below ROOT, as in 03_kvpipe and past_fa2/08_fragorder: the parts by name, in them the
# stages.
stage_directories() { # ROOT
  local LC_ALL=C file
  for file in "$1"/*/stage.cu "$1"/*/*/stage.cu; do
    file=${file%/stage.cu} file=${file#"$1"/}
    if [[ -d $1/$file && $file != build* && $file != work* ]]; then printf '%s\n' "$file"; fi
  done
}

# Prints the directory of the stage that 3, 03, kvpipe, 03_kvpipe, its directory or p3 for p03 names.
stage_called() { # ROOT NAME
  local name=${2,,} directory stage
  while [[ $name == */ ]]; do name=${name%/}; done
  if [[ $name =~ ^([a-z]?)([0-9])$ ]]; then name=${BASH_REMATCH[1]}0${BASH_REMATCH[2]}; fi
  while IFS= read -r directory; do
    stage=${directory##*/}
    if [[ $name == "$directory" || $name == "$stage" || $name == "${stage%%_*}" || $name == "${stage#*_}" ]]; then
      printf '%s\n' "$directory"
      return
    fi
  done < <(stage_directories "$1")
  return 1
}
