#include "client/render/completion.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace vpod::render {
namespace {

constexpr char kBash[] = R"(# bash completion for TOOL
NAME() {
  # Bash splits words at = and :, the tool wants them whole.
  local words=() word joined= line
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if [[ $word == [=:] && ${#words[@]} -gt 0 ]]; then
      words[-1]+=$word joined=1
    elif [[ $joined ]]; then
      words[-1]+=$word joined=
    else
      words+=("$word")
    fi
  done
  COMPREPLY=()
  while IFS=$'\t' read -r word line; do
    if [[ $word == :files ]]; then
      compopt -o filenames
      while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${words[-1]#*=}")
    else
      [[ ${words[-1]} == *=* ]] && word=${word#*=}
      COMPREPLY+=("$word")
    fi
  done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}
complete -F NAME TOOL
)";

constexpr char kZsh[] = R"(#compdef TOOL
# zsh completion for TOOL
NAME() {
  local line
  local -a candidates
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      _files
    else
      candidates+=("${${line//:/\\:}/$'\t'/:}")
    fi
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#candidates} )) && _describe TOOL candidates
}
if [[ ${funcstack[1]} == _TOOL ]]; then
  NAME "$@"
else
  compdef NAME TOOL
fi
)";

constexpr char kFish[] = R"fish(# fish completion for TOOL
function NAME
  set -l words (commandline -opc)
  set -l tool $words[1]
  set -e words[1]
  set -l begun "$(commandline -ct)"
  for line in ($tool __complete $words $begun 2>/dev/null)
    if test "$line" = :files
      set -l flag (string match -r -- '^-[^=]*=' $begun)
      for path in (__fish_complete_path (string replace -r -- '^-[^=]*=' '' $begun))
        echo -- "$flag$path"
      end
    else
      echo -- $line
    end
  end
end
complete -c TOOL -f -a '(NAME)'
)fish";

}  // namespace

std::string CompletionText(const Candidates& candidates, absl::string_view last_word) {
  std::string text;
  for (const auto& [word, what] : candidates) {
    if (word != kFiles && !absl::StartsWith(word, last_word)) continue;
    absl::StrAppend(&text, word, what.empty() ? "" : "\t", what, "\n");
  }
  return text;
}

std::string CompletionScript(absl::string_view shell, absl::string_view tool) {
  const char* script = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  const std::string name = absl::StrCat("_", absl::StrReplaceAll(tool, {{"-", "_"}}), "_complete");
  return absl::StrReplaceAll(script, {{"TOOL", tool}, {"NAME", name}});
}

}  // namespace vpod::render
