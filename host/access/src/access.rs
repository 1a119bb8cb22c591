//! From headers to a caller or an operator.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use sutler_model::{Application, Digest, Identifier};

use crate::browser::refuse_browsers;
use crate::token::among;
use crate::{AccessConfig, AccessError, Denied, Forbidden, InstanceAccess, NoAudit, Refused, Scope};

/// What of a request decides who it is: header values as they came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Incoming<'a> {
    pub authorization: Option<&'a str>,
    /// `Host`, or `:authority` of HTTP/2.
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`
    pub fetch_site: Option<&'a str>,
}

/// A control plane, and what it may act for. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: Arc<str>,
    pub tenants: Arc<Scope>,
    pub instances: Arc<Scope>,
    /// Nobody configured a token: anyone on this machine.
    pub anonymous: bool,
    audit: bool,
    /// The instance whose own token it is: it takes that instance's routes alone.
    home: Option<Identifier>,
    /// For whom anybody may act in an instance.
    rules: Arc<BTreeMap<Identifier, Scope>>,
}

/// A person or a program that runs this host.
#[derive(Debug, Clone)]
pub struct Operator {
    pub name: Arc<str>,
    audit: bool,
}

impl Operator {
    /// Whether it may read the audit.
    ///
    /// # Errors
    /// `NoAudit`
    pub fn may_audit(&self) -> Result<(), NoAudit> {
        may_audit(self.audit, &self.name, "its [[access.operators]]")
    }
}

impl Caller {
    fn anonymous(rules: Arc<BTreeMap<Identifier, Scope>>) -> Self {
        let all = Arc::new(Scope::All);
        let (tenants, instances) = (all.clone(), all);
        Self { name: "anonymous".into(), tenants, instances, anonymous: true, audit: true, home: None, rules }
    }

    /// Whether it may use the routes of this instance; `None`: those of all.
    ///
    /// # Errors
    /// `Denied::OnlyInInstance` for the own token of an instance elsewhere.
    pub fn at_home(&self, route: Option<&Identifier>) -> Result<(), Denied> {
        match &self.home {
            Some(home) if route != Some(home) => Err(Denied::OnlyInInstance(home.clone())),
            _ => Ok(()),
        }
    }

    /// Whether it may read the audit, of its tenants and instances.
    ///
    /// # Errors
    /// `NoAudit`
    pub fn may_audit(&self) -> Result<(), NoAudit> {
        let table = if self.home.is_some() { "its [instances.NAME]" } else { "its [[access.callers]]" };
        may_audit(self.audit, &self.name, table)
    }

    /// Whether the caller may act for this application's tenant and instance.
    ///
    /// # Errors
    /// `Refused`, which names the tenant or the instance.
    pub fn allows(&self, application: &Application) -> Result<(), Refused> {
        let (tenant, path) = (application.tenant.as_ref(), "/application/tenant");
        self.within("tenant", path, &self.tenants, tenant)?;
        self.allows_instance(application.instance.as_ref())?;
        let rule = application.instance.as_ref().and_then(|i| Some((i, self.rules.get(i)?)));
        let Some((instance, scope)) = rule else { return Ok(()) };
        self.within("tenant", path, scope, tenant).map_err(|mut e| {
            e.what = format!("{} in instance \"{instance}\"", e.what);
            e.allowed = format!("{} there", e.allowed);
            e
        })?;
        Ok(())
    }

    /// Whether the caller may act for this instance of the control plane, or for none. Where instances are configured,
    /// nobody acts for another one: nothing of what holds for them would hold there.
    ///
    /// # Errors
    /// `Refused`, which names the instance.
    pub fn allows_instance(&self, instance: Option<&Identifier>) -> Result<(), Refused> {
        self.within("instance", "/application/instance", &self.instances, instance)?;
        match instance {
            Some(name) if !self.rules.is_empty() && !self.rules.contains_key(name) => {
                Err(Refused::UnknownInstance(name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Of which tenants the caller may see what belongs to an instance, or to none; `None`: of no tenant at all.
    pub fn tenants_in(&self, instance: Option<&Identifier>) -> Option<Scope> {
        match instance.and_then(|i| self.rules.get(i)) {
            Some(rule) => self.tenants.and(rule),
            None => Some(Scope::clone(&self.tenants)),
        }
    }

    fn within(
        &self,
        what: &str,
        path: &'static str,
        scope: &Scope,
        name: Option<&Identifier>,
    ) -> Result<(), Forbidden> {
        if scope.allows(name) {
            return Ok(());
        }
        let named = name.map_or_else(|| format!("no {what}"), |n| format!("{what} \"{n}\""));
        Err(Forbidden { caller: self.name.to_string(), what: named, allowed: scope.words(what), path })
    }
}

#[derive(Debug)]
struct Known<T> {
    who: T,
    hashes: Vec<Digest>,
}

/// Decides who calls. Made once from the configuration.
#[derive(Debug)]
pub struct Access {
    callers: Vec<Known<Caller>>,
    operators: Vec<Known<Operator>>,
    anonymous: Caller,
}

impl Access {
    /// # Errors
    /// `AccessError` for a name, a hash or a scope that cannot be used.
    pub fn new(config: &AccessConfig, instances: &[InstanceAccess]) -> Result<Self, AccessError> {
        let mut check = Check::default();
        let rules = Arc::new(rules(instances)?);
        let mut callers = Vec::new();
        for c in &config.callers {
            let at = format!("access.callers {:?}", c.name);
            let hashes = check.entry(&at, &c.name, &c.token_hash)?;
            let who = Caller {
                name: c.name.as_str().into(),
                tenants: Arc::new(Scope::parse(&at, "tenants", &c.tenants)?),
                instances: Arc::new(Scope::parse(&at, "instances", &c.instances)?),
                anonymous: false,
                audit: c.audit,
                home: None,
                rules: rules.clone(),
            };
            callers.push(Known { who, hashes });
        }
        for i in instances.iter().filter(|i| !i.token_hash.is_empty()) {
            if let Some(name) = rules.keys().find(|n| n.as_str() == i.name) {
                callers.push(check.own(i, name, &rules)?);
            }
        }
        let mut operators = Vec::new();
        for o in &config.operators {
            let at = format!("access.operators {:?}", o.name);
            let hashes = check.entry(&at, &o.name, &o.token_hash)?;
            operators.push(Known { who: Operator { name: o.name.as_str().into(), audit: o.audit }, hashes });
        }
        Ok(Self { callers, operators, anonymous: Caller::anonymous(rules) })
    }

    /// Nobody has a token: anyone on this machine may call.
    pub fn open() -> Self {
        let anonymous = Caller::anonymous(Arc::default());
        Self { callers: Vec::new(), operators: Vec::new(), anonymous }
    }

    /// Whether the provisioner API takes calls without a token.
    pub fn callers_open(&self) -> bool {
        self.callers.is_empty()
    }

    /// Whether the admin API takes calls without a token.
    pub fn operators_open(&self) -> bool {
        self.operators.is_empty()
    }

    /// Whether the provisioner API may listen here.
    ///
    /// # Errors
    /// `AccessError::OpenToOthers` for an address beyond loopback while no caller has a token.
    pub fn listen_rule(&self, address: SocketAddr) -> Result<(), AccessError> {
        rule(self.callers_open(), "the provisioner API", "callers", address)
    }

    /// Whether the admin API may listen here.
    ///
    /// # Errors
    /// `AccessError::OpenToOthers` for an address beyond loopback while no operator has a token.
    pub fn admin_listen_rule(&self, address: SocketAddr) -> Result<(), AccessError> {
        rule(self.operators_open(), "the admin API", "operators", address)
    }

    /// Who calls the provisioner API.
    ///
    /// # Errors
    /// `Denied`, which says whether a token would help.
    pub fn caller(&self, incoming: &Incoming<'_>) -> Result<Caller, Denied> {
        if self.callers_open() {
            refuse_browsers(incoming)?;
            return Ok(self.anonymous.clone());
        }
        let digest = bearer(incoming)?;
        find(&digest, &self.callers).cloned().ok_or_else(|| match find(&digest, &self.operators) {
            Some(_) => Denied::NotACaller,
            None => Denied::Unknown,
        })
    }

    /// Who calls the admin API.
    ///
    /// # Errors
    /// `Denied`, which says whether a token would help.
    pub fn operator(&self, incoming: &Incoming<'_>) -> Result<Operator, Denied> {
        if self.operators_open() {
            refuse_browsers(incoming)?;
            return Ok(Operator { name: self.anonymous.name.clone(), audit: true });
        }
        let digest = bearer(incoming)?;
        find(&digest, &self.operators).cloned().ok_or_else(|| match find(&digest, &self.callers) {
            Some(_) => Denied::NotAnOperator,
            None => Denied::Unknown,
        })
    }
}

/// For whom anybody may act in each instance, by the instances' names in their order.
fn rules(instances: &[InstanceAccess]) -> Result<BTreeMap<Identifier, Scope>, AccessError> {
    let one = |i: &InstanceAccess| {
        let at = format!("instances.{}", i.name);
        let name =
            Identifier::parse(&i.name).map_err(|why| AccessError::BadInstance { at: at.clone(), why })?;
        let tenants = i.tenants.as_ref().map(|t| Scope::parse(&at, "tenants", t)).transpose()?;
        Ok((name, tenants.unwrap_or(Scope::All)))
    };
    instances.iter().map(one).collect()
}

fn may_audit(may: bool, name: &Arc<str>, table: &'static str) -> Result<(), NoAudit> {
    if may { Ok(()) } else { Err(NoAudit { name: name.to_string(), table }) }
}

fn rule(open: bool, what: &'static str, table: &'static str, address: SocketAddr) -> Result<(), AccessError> {
    if open && !address.ip().to_canonical().is_loopback() {
        return Err(AccessError::OpenToOthers { what, table, address });
    }
    Ok(())
}

/// The digest of the bearer token (RFC 6750 section 2.1; the scheme's case does not matter).
fn bearer(incoming: &Incoming<'_>) -> Result<Digest, Denied> {
    let header = incoming.authorization.ok_or(Denied::Missing)?;
    let (scheme, token) = header.split_once(' ').ok_or(Denied::Malformed)?;
    let token = token.trim_start_matches(' ');
    let fits = (1..=4096).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    if !scheme.eq_ignore_ascii_case("bearer") || !fits {
        return Err(Denied::Malformed);
    }
    Ok(Digest::of(token.as_bytes()))
}

/// Looks at every entry, so that the time does not tell which one fits.
fn find<'a, T>(digest: &Digest, known: &'a [Known<T>]) -> Option<&'a T> {
    known.iter().fold(None, |found, k| if among(digest, &k.hashes) { Some(&k.who) } else { found })
}

/// What no two entries may share.
#[derive(Default)]
struct Check {
    names: HashSet<String>,
    hashes: HashMap<Digest, String>,
}

impl Check {
    fn entry(&mut self, at: &str, name: &str, hashes: &[String]) -> Result<Vec<Digest>, AccessError> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if !(1..=63).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(AccessError::BadName { at: at.into(), name: name.chars().take(80).collect() });
        }
        if !self.names.insert(name.to_owned()) {
            return Err(AccessError::NameTwice { at: at.into(), name: name.into() });
        }
        if hashes.is_empty() {
            return Err(AccessError::NoHash { at: at.into() });
        }
        self.hashes(at, hashes)
    }

    /// The own token of an instance. No configured name has a slash in it, so nobody else is called so.
    fn own(
        &mut self,
        i: &InstanceAccess,
        name: &Identifier,
        rules: &Arc<BTreeMap<Identifier, Scope>>,
    ) -> Result<Known<Caller>, AccessError> {
        let hashes = self.hashes(&format!("instances.{}", i.name), &i.token_hash)?;
        let who = Caller {
            name: format!("instances/{name}").into(),
            tenants: Arc::new(Scope::All),
            instances: Arc::new(Scope::Only(vec![name.clone()])),
            anonymous: false,
            audit: i.audit,
            home: Some(name.clone()),
            rules: rules.clone(),
        };
        Ok(Known { who, hashes })
    }

    fn hashes(&mut self, at: &str, hashes: &[String]) -> Result<Vec<Digest>, AccessError> {
        let mut out = Vec::with_capacity(hashes.len());
        for (i, text) in hashes.iter().enumerate() {
            let position = i + 1;
            let digest: Digest =
                text.parse().map_err(|_| AccessError::BadHash { at: at.into(), position })?;
            if let Some(other) = self.hashes.insert(digest, at.to_owned()) {
                return Err(AccessError::HashTwice { at: at.into(), position, other });
            }
            out.push(digest);
        }
        Ok(out)
    }
}
