//! What the settings ask this plugin to do.

use serde_json::Value;

macro_rules! deeds {
    ($($name:ident = $word:literal),+ $(,)?) => {
        /// One way to misbehave (or not).
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Deed { $($name),+ }

        /// The words of `do`, for the settings schema.
        pub(crate) const WORDS: &[&str] = &[$($word),+];

        fn deed(word: &str) -> Deed {
            match word { $($word => Deed::$name,)+ _ => Deed::Ok }
        }
    };
}

deeds! {
    Ok = "ok",
    Echo = "echo",
    Loop = "loop",
    Allocate = "allocate",
    Recurse = "recurse",
    FloodLog = "flood-log",
    FloodHost = "flood-host",
    HugeAnswer = "huge-answer",
    NotJson = "not-json",
    BreakSchema = "break-schema",
    ReservedCode = "reserved-code",
    BadCode = "bad-code",
    UnknownStep = "unknown-step",
    Trap = "trap",
    Panic = "panic",
    SleepInHost = "sleep-in-host",
    OtherTenantNamespace = "other-tenant-namespace",
    WriteInPlan = "write-in-plan",
    Clock = "clock",
    Random = "random",
    LeakSecret = "leak-secret",
    NextForever = "next-forever",
    SaveForever = "save-forever",
    WaitForever = "wait-forever",
    BadState = "bad-state",
    HugeState = "huge-state",
    Empty = "empty",
    Twice = "twice",
    WrongResource = "wrong-resource",
    Absent = "absent",
    Replace = "replace",
    Fail = "fail",
    FailRetryable = "fail-retryable",
    FailAfter = "fail-after",
}

/// Where it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Export {
    Plan,
    Apply,
    Cancel,
    Inspect,
    Locate,
}

impl Export {
    const fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Cancel => "cancel",
            Self::Inspect => "inspect",
            Self::Locate => "locate",
        }
    }
}

/// The settings of one resource.
pub(crate) struct Order(Value);

impl Order {
    pub(crate) fn read(settings: Option<&str>) -> Self {
        Self(settings.and_then(|s| serde_json::from_str(s).ok()).unwrap_or_default())
    }

    /// What to do in this export: `in` (a list) limits the harm to some of them.
    pub(crate) fn deed(&self, export: Export) -> Deed {
        let here = self.0["in"].as_array().is_none_or(|only| only.iter().any(|e| e == export.word()));
        if here { deed(self.word()) } else { Deed::Ok }
    }

    pub(crate) fn word(&self) -> &str {
        self.0["do"].as_str().unwrap_or("ok")
    }

    pub(crate) fn namespace(&self) -> String {
        self.0["namespace"].as_str().unwrap_or("default").into()
    }

    pub(crate) fn number(&self, otherwise: u64) -> u64 {
        self.0["value"].as_u64().unwrap_or(otherwise)
    }

    pub(crate) fn name(&self, otherwise: &str) -> String {
        self.0["value"].as_str().unwrap_or(otherwise).into()
    }

    pub(crate) fn secret(&self) -> String {
        self.0["secret"].as_str().unwrap_or_default().into()
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }
}
