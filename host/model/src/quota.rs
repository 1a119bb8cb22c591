//! How much of a cluster applications may take, and do take.

/// CPU in thousandths of a core, memory in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Use {
    pub milli_cpus: u64,
    pub memory_mib: u64,
}

impl std::ops::Add for Use {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            milli_cpus: self.milli_cpus.saturating_add(other.milli_cpus),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }
}

impl Use {
    /// What is counted while a change is under way: the larger of both sides, by each measure.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            milli_cpus: self.milli_cpus.max(other.milli_cpus),
            memory_mib: self.memory_mib.max(other.memory_mib),
        }
    }
}

/// What is counted, by its name in configuration and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Applications,
    MilliCpus,
    MemoryMib,
}

impl Measure {
    pub const ALL: [Self; 3] = [Self::Applications, Self::MilliCpus, Self::MemoryMib];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applications => "applications",
            Self::MilliCpus => "milli-cpus",
            Self::MemoryMib => "memory-mib",
        }
    }
}

/// The most of each measure; `None` is no limit, 0 is none at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub applications: Option<u64>,
    pub milli_cpus: Option<u64>,
    pub memory_mib: Option<u64>,
}

impl Quota {
    pub const fn of(&self, measure: Measure) -> Option<u64> {
        match measure {
            Measure::Applications => self.applications,
            Measure::MilliCpus => self.milli_cpus,
            Measure::MemoryMib => self.memory_mib,
        }
    }
    /// Whether nothing is limited.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for one application: of its instance, and of its tenant within that instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    pub instance: Quota,
    pub tenant: Quota,
}

impl Quotas {
    /// Whether nothing is limited.
    pub fn is_free(&self) -> bool {
        self.instance.is_free() && self.tenant.is_free()
    }
}

/// Whose quota it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaOf {
    Instance,
    Tenant,
}

impl QuotaOf {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Tenant => "tenant",
        }
    }
}

/// Work that was not begun, because it would take more than a quota leaves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the quota {} of the {} does not allow this: {used} are used, {asked} more are asked for, {limit} are the limit; \
     delete or shrink an application, or ask the operator for more", measure.as_str(), of.as_str()
)]
pub struct OverQuota {
    pub of: QuotaOf,
    pub measure: Measure,
    pub used: u64,
    pub asked: u64,
    pub limit: u64,
}
