// What a stream is to the person who reads it: a terminal or not, its colours, its width.
#pragma once
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace ladder {

// Whether a line there can be written over. TERM=dumb says no.
bool is_terminal(std::FILE* stream);

// Colours are for terminals, and for those who want them: NO_COLOR (https://no-color.org) turns them off.
bool has_colour(std::FILE* stream);

// Characters per line of a terminal; 0 for files and pipes.
size_t screen_columns(std::FILE* stream);

// How wide tables and paragraphs may be: COLUMNS where it is set, otherwise the screen's; 0 is no limit.
size_t columns_of(std::FILE* stream);

// The text in lines of at most `width` characters, broken at spaces; a longer word stands alone. Line breaks in it
// stay.
std::string wrapped(std::string_view text, size_t width);
// The same for a stream; unchanged where there is no limit.
std::string wrapped(std::string_view text, std::FILE* stream);
void print_wrapped(std::FILE* stream, std::string_view text);  // and a line end

}  // namespace ladder
