//! The words after a command's name, taken one after the other.
//! What they mean does not belong here.

use crate::failure::{Failure, Result};

/// The arguments that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Args {
    words: Vec<String>,
}

impl Args {
    /// All arguments of a command.
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Self {
        Self { words: words.collect() }
    }

    /// Whether the first argument asks for help.
    pub(crate) fn asks_for_help(&self) -> bool {
        self.words.first().is_some_and(|word| word == "--help" || word == "-h")
    }

    /// Takes every `FLAG a,b` and `FLAG=a,b`, and gives the values in order.
    ///
    /// # Errors
    ///
    /// When the flag stands last, without a value.
    pub(crate) fn list(&mut self, flag: &str) -> Result<Vec<String>> {
        let mut values = Vec::new();
        let mut others = Vec::new();
        let mut words = std::mem::take(&mut self.words).into_iter();
        while let Some(word) = words.next() {
            let value = if word == flag {
                words.next().ok_or_else(|| Failure::usage(format!("`{flag}` needs a value")))?
            } else if let Some(value) = word.strip_prefix(flag).and_then(|v| v.strip_prefix('=')) {
                value.to_owned()
            } else {
                others.push(word);
                continue;
            };
            values.extend(value.split(',').filter(|v| !v.is_empty()).map(str::to_owned));
        }
        self.words = others;
        Ok(values)
    }

    /// Takes a flag without a value; tells whether it was there.
    pub(crate) fn flag(&mut self, flag: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != flag);
        self.words.len() < before
    }

    /// Takes the first argument if it is one of `choices`.
    ///
    /// # Errors
    ///
    /// When there is a first argument, and it is none of them.
    pub(crate) fn choice(&mut self, choices: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(first) = self.words.first() else { return Ok(None) };
        let chosen = choices.iter().copied().find(|choice| choice == first).ok_or_else(|| {
            Failure::usage(format!("unknown argument `{first}`, wanted {}", choices.join(" or ")))
        })?;
        self.words.remove(0);
        Ok(Some(chosen))
    }

    /// Takes the first argument if it is one of `choices`, and leaves it otherwise.
    pub(crate) fn leading(&mut self, choices: &[&'static str]) -> Option<&'static str> {
        let first = self.words.first()?;
        let chosen = choices.iter().copied().find(|choice| choice == first)?;
        self.words.remove(0);
        Some(chosen)
    }

    /// All that is left.
    pub(crate) fn rest(self) -> Vec<String> {
        self.words
    }

    /// # Errors
    ///
    /// When something is left.
    pub(crate) fn finish(self) -> Result {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(Failure::usage(format!("unknown argument `{word}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn lists_are_collected_and_the_rest_is_kept() {
        let mut args = args("--with torch,jax --quick --with=pyarrow");
        assert_eq!(args.list("--with").unwrap(), ["torch", "jax", "pyarrow"]);
        assert_eq!(args.rest(), ["--quick"]);
    }

    #[test]
    fn a_flag_without_a_value_is_refused() {
        assert!(args("--with").list("--with").is_err());
    }

    #[test]
    fn a_flag_is_taken_wherever_it_stands() {
        let mut args = args("python --quick --with torch");
        assert!(args.flag("--quick"));
        assert!(!args.flag("--quick"));
        assert_eq!(args.rest(), ["python", "--with", "torch"]);
    }

    #[test]
    fn a_choice_is_one_of_the_given_words() {
        assert_eq!(args("").choice(&["rust"]).unwrap(), None);
        assert_eq!(args("rust x").choice(&["rust"]).unwrap(), Some("rust"));
        assert!(args("rusty").choice(&["rust"]).is_err());
    }

    #[test]
    fn what_is_no_choice_is_left() {
        let mut args = args("--write rust");
        assert_eq!(args.leading(&["rust"]), None);
        assert!(args.flag("--write"));
        assert_eq!(args.leading(&["rust"]), Some("rust"));
        assert_eq!(args.leading(&["rust"]), None);
    }

    #[test]
    fn leftovers_are_refused() {
        assert!(args("--wiht").finish().is_err());
        assert!(args("").finish().is_ok());
    }
}
