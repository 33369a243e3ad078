//! The calls of `cargo test` that arguments for it mean.

/// The arguments of `cargo test` that choose targets.
const TARGETS: [&str; 10] = [
    "--lib",
    "--bin",
    "--bins",
    "--test",
    "--tests",
    "--example",
    "--examples",
    "--bench",
    "--benches",
    "--all-targets",
];

/// What a call of `cargo test` is called, the tests that it chooses, and how they show what they print.
type Call = (&'static str, Option<&'static str>, Option<&'static str>);

/// The calls of `cargo test` for some arguments. Doc tests have one of their own: rustdoc merges them to a few programs, which
/// takes seconds instead of minutes, only where it need not show what each of them prints.
pub(crate) fn calls(args: &[String], libraries: &[&str]) -> Vec<Call> {
    let before: Vec<&str> =
        args.iter().map(|arg| &arg[..]).take_while(|arg| *arg != "--").collect();
    let chooses = |names: &[&str]| {
        before.iter().any(|arg| names.contains(&arg.split('=').next().unwrap_or_default()))
    };
    let is_library = |arg: &&str| {
        libraries.contains(&arg.trim_start_matches("--package=").trim_start_matches("-p"))
    };
    if chooses(&["--doc"]) {
        return vec![("doc tests", None, None)];
    }
    let shows = Some("--show-output");
    if chooses(&TARGETS) {
        return vec![("cargo test", None, shows)];
    }
    let mut calls = vec![("cargo test", Some("--tests"), shows)];
    if !names_package(args) || before.iter().any(is_library) {
        calls.push(("doc tests", Some("--doc"), None));
    }
    calls
}

/// Whether arguments for cargo choose packages.
pub(crate) fn names_package(args: &[String]) -> bool {
    let mut before = args.iter().take_while(|arg| *arg != "--");
    before.any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn doc_tests_have_a_call_of_their_own() {
        let of = |words: &str| {
            let args: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
            let calls = calls(&args, &["dlbridge"]);
            assert!(calls.iter().all(|(name, _, shows)| shows.is_none() == (*name == "doc tests")));
            calls.into_iter().map(|(_, chosen, _)| chosen.unwrap_or_default()).collect::<Vec<_>>()
        };
        for all in ["", "layout::", "-p dlbridge", "--package=dlbridge x", "-- --skip --doc"] {
            assert_eq!(of(all), ["--tests", "--doc"], "{all}");
        }
        // Without a library, `cargo test --doc` fails.
        assert_eq!(of("-p xtask"), ["--tests"]);
        for chosen in
            ["-p dlbridge --test it", "--lib", "--test=it -- x", "--doc", "-p xtask --bin=x"]
        {
            assert_eq!(of(chosen), [""], "{chosen}");
        }
    }
}
