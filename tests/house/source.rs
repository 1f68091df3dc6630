//! Rust source, read as far as its imports need it: without comments, literals and tests, with paths resolved to the
//! crate's root.

use std::path::Path;

/// One file of a folder of the project.
pub(crate) struct Source {
    /// Its path below the folder, with `/`.
    pub(crate) path: String,
    /// The text of the file.
    pub(crate) text: String,
    /// The text with comments and literals blanked out.
    code: String,
    /// The code with everything under `#[cfg(test)]` blanked out; empty for a file of tests.
    shipped: String,
}

/// Every file of src/.
pub(crate) fn all_sources() -> Vec<Source> {
    sources_below("src")
}

/// Every file of a folder of the project.
pub(crate) fn sources_below(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut sources = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // What was built in a package of its own is no source.
                if !path.ends_with("target") {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let names: Vec<_> =
                    path.strip_prefix(&root).unwrap().iter().map(|name| name.to_string_lossy()).collect();
                sources.push(Source::new(&names.join("/"), &std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blank_comments_and_literals(text);
        let is_tests = path.trim_end_matches(".rs").split('/').any(|name| name == "tests");
        let shipped = if is_tests { String::new() } else { blank_tests(&code) };
        Source { path: path.to_owned(), text: text.to_owned(), code, shipped }
    }

    /// Its place in the tree of modules.
    fn modules(&self) -> Vec<&str> {
        let names = self.path.trim_end_matches(".rs").split('/');
        names.filter(|name| !matches!(*name, "mod" | "lib" | "main")).collect()
    }

    /// The module of the crate's root that it belongs to, or `main` or `lib`.
    pub(crate) fn module(&self) -> &str {
        self.path.split('/').next().unwrap().trim_end_matches(".rs")
    }

    /// The modules of the crate's root that it names in a path, each with its line, tests left out.
    pub(crate) fn own_modules(&self) -> Vec<(usize, String)> {
        let to_root = "super::".repeat(self.modules().len().max(1));
        let mut found: Vec<_> =
            ["crate::", "flowpeel::", &to_root].iter().flat_map(|root| self.heads_below(root)).collect();
        found.sort();
        found
    }

    /// The names that follow a root such as `std::`: one name, or each name of a group in braces, tests left out.
    pub(crate) fn heads_below(&self, root: &str) -> Vec<(usize, String)> {
        let tokens = tokens(&self.shipped);
        let root: Vec<&str> = root.split_inclusive("::").flat_map(|step| [step.trim_end_matches("::"), "::"]).collect();
        let mut found = Vec::new();
        for at in 0..tokens.len() {
            let is_root = tokens[at..].iter().map(|token| token.text).take(root.len()).eq(root.iter().copied());
            // A path that goes on from before is another path.
            if is_root && (at == 0 || tokens[at - 1].text != "::") {
                found.extend(heads(&tokens[at + root.len()..]));
            }
        }
        found
    }

    /// The words of its code, tests included, comments and literals not.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.code.split(|c: char| !c.is_alphanumeric() && c != '_')
    }

    /// The words of its code without tests; `None` for a file of tests.
    pub(crate) fn words_without_tests(&self) -> Option<impl Iterator<Item = &str>> {
        (!self.shipped.is_empty()).then(|| self.shipped.split(|c: char| !c.is_alphanumeric() && c != '_'))
    }
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Words, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match first {
            _ if word > 0 => word,
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(Token { text: &rest[..length], line });
        }
        line += usize::from(first == '\n');
        rest = &rest[length..];
    }
    tokens
}

/// The names with which a path goes on.
fn heads(tokens: &[Token]) -> Vec<(usize, String)> {
    let named = |token: &Token| (token.line, token.text.to_owned());
    if tokens.first().is_none_or(|token| token.text != "{") {
        return tokens.first().map(named).into_iter().collect();
    }
    let (mut depth, mut found) = (0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ if depth == 1 && matches!(tokens[at - 1].text, "{" | ",") => found.push(named(token)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Overwrites a part with spaces; lines stay lines.
fn blank(characters: &mut [char]) {
    characters.iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
}

/// The same text with nothing in comments, strings and characters.
fn blank_comments_and_literals(text: &str) -> String {
    let mut code: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < code.len() {
        let length = length_of_blank(&code[at..], at > 0 && (code[at - 1].is_alphanumeric() || code[at - 1] == '_'));
        let end = (at + length).min(code.len());
        blank(&mut code[at..end]);
        at = end.max(at + 1);
    }
    code.into_iter().collect()
}

/// How long the comment or literal is that begins here; 0 where none does.
fn length_of_blank(code: &[char], is_within_word: bool) -> usize {
    let find = |from: usize, what: &[char]| {
        let at = code.get(from..).and_then(|rest| rest.windows(what.len()).position(|window| window == what));
        at.map_or(code.len(), |at| from + at + what.len())
    };
    match code {
        ['/', '/', ..] => find(2, &['\n']) - 1,
        ['/', '*', ..] => length_of_block_comment(code),
        ['r', '"' | '#', ..] if !is_within_word => {
            let hashes = code[1..].iter().take_while(|c| **c == '#').count();
            let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            // What looks like `r#name` is a name.
            if code.get(1 + hashes) == Some(&'"') { find(2 + hashes, &end) } else { 0 }
        }
        ['"', ..] => {
            let mut at = 1;
            while at < code.len() && code[at] != '"' {
                at += if code[at] == '\\' { 2 } else { 1 };
            }
            at + 1
        }
        ['\'', '\\', _, ..] => find(3, &['\'']),
        // A lifetime has no quote behind its first letter.
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// Block comments nest.
fn length_of_block_comment(code: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match &code[at.min(code.len())..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            [] => return code.len(),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
}

/// The same code without the items under `#[cfg(test)]`: up to a semicolon, or to the brace that closes the first.
fn blank_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut code = code.to_owned();
    while let Some(begin) = code.find(MARK) {
        let mut depth = 0;
        let end = code[begin + MARK.len()..].char_indices().find_map(|(at, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            let is_end = depth == 0 && matches!(c, '}' | ';');
            is_end.then_some(begin + MARK.len() + at + 1)
        });
        let mut item: Vec<char> = code[begin..end.unwrap_or(code.len())].chars().collect();
        blank(&mut item);
        code.replace_range(begin..end.unwrap_or(code.len()), &item.into_iter().collect::<String>());
    }
    code
}
