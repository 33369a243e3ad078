//! Where links lead: into the repository, or out of it.
//! Whether a heading exists is checked where the pages are rendered.
//! Invariant: no network is asked.

use std::path::{Component, Path, PathBuf};

/// A link's end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In the same page.
    Here,
    /// A file or a folder of the repository.
    Inside(PathBuf),
    /// An address of the web, which only looks right.
    Outside,
    /// Nowhere, and why.
    Nowhere(String),
}

/// Where a link of a page leads.
pub(crate) fn end(page: &str, target: &str) -> End {
    if target.starts_with('#') {
        return End::Here;
    }
    if let Some((scheme, rest)) = target.split_once("://") {
        let host = rest.split('/').next().unwrap_or_default();
        let right =
            scheme == "https" && host.contains('.') && !target.contains(char::is_whitespace);
        if right {
            return End::Outside;
        }
        return End::Nowhere("no address of the web: https, a host, no spaces".to_owned());
    }
    let path = target.split('#').next().unwrap_or_default();
    match join(Path::new(page).parent().unwrap_or(Path::new("")), Path::new(path)) {
        Some(path) => End::Inside(path),
        None => End::Nowhere("leads out of the repository".to_owned()),
    }
}

/// A path in the repository, without `.` and `..`.
fn join(folder: &Path, path: &Path) -> Option<PathBuf> {
    let mut joined = PathBuf::from(folder);
    for component in path.components() {
        match component {
            Component::Normal(name) => joined.push(name),
            Component::CurDir => {}
            Component::ParentDir if joined.pop() => {}
            _ => return None,
        }
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::{End, end};

    #[test]
    fn paths_start_at_the_page() {
        let inside = |path: &str| End::Inside(path.into());
        assert_eq!(end("docs/guide/c.md", "../../SAFETY.md#the-stance"), inside("SAFETY.md"));
        assert_eq!(end("README.md", "docs/julia.md"), inside("docs/julia.md"));
        assert_eq!(end("README.md", "#try-it"), End::Here);
    }

    #[test]
    fn what_leads_nowhere_is_found() {
        assert_eq!(end("README.md", "https://a.example/b"), End::Outside);
        for odd in ["http://a.example", "https://", "https://a b.example", "../x.md", "/x.md"] {
            assert!(matches!(end("README.md", odd), End::Nowhere(_)), "{odd}");
        }
    }
}
