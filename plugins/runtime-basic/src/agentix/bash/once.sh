# The BASH_ENV of a command's shell: reads the file that was asked for, as bash would have, and keeps the bash that is
# started below from reading it again. Nothing is left to do behind the file, so that what it sets up (set -x, traps)
# is about the command alone.
BASH_ENV=$__AGENTIX_BASH_ENV
export -n BASH_ENV
unset __AGENTIX_BASH_ENV
eval "__agentix=\"${BASH_ENV//\"/\\\"}\"" # expanded, as bash does it with the value
case $__agentix in
'~' | '~/'*) __agentix=$HOME${__agentix#'~'} ;;
*/*) ;;
*) __agentix=./$__agentix ;; # not looked for on the PATH
esac
if [ -e "$__agentix" ]; then
  printf -v __agentix %q "$__agentix"
  eval "unset __agentix; . $__agentix"
else
  unset __agentix
fi
