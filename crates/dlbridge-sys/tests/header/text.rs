//! Reads a header as text: its version, and the names that it declares.
//! Values are the C compiler's business and are not read here.
//! Invariant: a name inside a comment is not a declaration.

/// The text of a header without its comments.
pub(crate) struct Header {
    code: String,
}

impl Header {
    /// Takes the comments out of a header.
    pub(crate) fn new(text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
            code.push_str(&rest[..start]);
            let comment = &rest[start..];
            let (end, kept) = if comment.starts_with("/*") { ("*/", 2) } else { ("\n", 0) };
            let length = comment.find(end).map_or(comment.len(), |at| at + kept);
            rest = &comment[length..];
            code.push(' ');
        }
        code.push_str(rest);
        Self { code }
    }

    /// Major and minor version; headers before 1.0 count as `(0, n)`.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        match (self.define("DLPACK_MAJOR_VERSION"), self.define("DLPACK_MINOR_VERSION")) {
            (Some(major), Some(minor)) => Some((major, minor)),
            _ => Some((0, self.define("DLPACK_VERSION")? / 10)),
        }
    }

    /// The number that a macro stands for.
    fn define(&self, name: &str) -> Option<u32> {
        self.defined(name)?.parse().ok()
    }

    /// The text that a macro stands for.
    pub(crate) fn defined(&self, name: &str) -> Option<&str> {
        self.code.lines().find_map(|line| {
            let rest = line.trim_start().strip_prefix("#define")?.trim_start();
            let value = rest.strip_prefix(name)?;
            value.starts_with(char::is_whitespace).then(|| value.trim())
        })
    }

    /// The names that the enum `name` declares, in order.
    pub(crate) fn enumerators(&self, name: &str) -> Vec<String> {
        let mut blocks = self.code.split('}').collect::<Vec<_>>().into_iter().rev();
        let mut after = blocks.next().unwrap_or_default();
        for block in blocks {
            if after.trim_start().strip_prefix(name).is_some_and(|end| end.starts_with(';')) {
                let body = block.rsplit('{').next().unwrap_or_default();
                let is_code = |line: &&str| !line.trim_start().starts_with('#');
                let body: String = body.lines().filter(is_code).collect();
                return body.split(',').filter_map(identifier).map(str::to_owned).collect();
            }
            after = block;
        }
        Vec::new()
    }
}

/// The identifier in front of an enumerator's value.
fn identifier(enumerator: &str) -> Option<&str> {
    enumerator.split('=').next().map(str::trim).filter(|name| !name.is_empty())
}
