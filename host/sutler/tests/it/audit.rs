//! Who asked for which change: told to whom it was granted, of their tenants and instances, and to the operator.

use serde_json::{Value, json};
use sutler_testkit::http::{Answered, Caller, SampleRequest};

use crate::ledger_cli::{SETTING, config, sutler};
use crate::listeners::hash;
use crate::support::{GRANTS, Wanted, World};

async fn world() -> World {
    let caller = |name: &str, tenant: &str, audit: bool| {
        let hash = hash(name);
        format!(
            "[[access.callers]]\nname = {name:?}\ntoken-hash = [{hash:?}]\ntenants = [{tenant:?}]\n\
             audit = {audit}\n\n"
        )
    };
    let operator = |name: &str, audit: bool| {
        let hash = hash(name);
        format!("[[access.operators]]\nname = {name:?}\ntoken-hash = [{hash:?}]\naudit = {audit}\n\n")
    };
    let access = [
        caller("of-acme", "acme", true),
        caller("of-globex", "globex", true),
        caller("blind", "acme", false),
        operator("ops", true),
        operator("dev", false),
    ]
    .concat();
    let toml = format!("{GRANTS}\n{access}[ledger]\npath = \"FOLDER/ledger.db\"\n");
    let world = Wanted::new().plugin("hostile").config(&toml).start().await;
    let file = world.folder.path().join("sutler.toml");
    std::fs::write(file, config(world.folder.path(), &world.folder.path().join("plugins"))).unwrap();
    world
}

/// Actor, action, resource, tenant and request id of each, the newest first.
fn entries(list: &[Value]) -> Vec<[String; 5]> {
    let cells = ["actor", "action", "resourceId", "tenant", "requestId"];
    let text = |e: &Value, cell: &str| e[cell].as_str().unwrap_or("-").to_owned();
    list.iter().map(|e| cells.map(|cell| text(e, cell))).collect()
}

#[track_caller]
fn page(answered: &Answered) -> Vec<[String; 5]> {
    assert_eq!(answered.status, 200, "{}", answered.text);
    entries(answered.json["entries"].as_array().unwrap())
}

fn row(cells: [&str; 5]) -> [String; 5] {
    cells.map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_with_equal_applications_never_meet_in_the_audit() {
    let mut world = world().await;
    let as_caller = |name: &str| Caller::new(&world.host.url).with_token(name);
    let (acme, globex, blind) = (as_caller("of-acme"), as_caller("of-globex"), as_caller("blind"));
    let admin = |name: &str| world.admin().with_token(name);
    let body = |tenant: &str, id: &str| {
        let request = SampleRequest::new("tool/hostile").application("tenant", tenant).id(id);
        request.create(json!({"do": "ok", "value": SETTING})).body()
    };
    for (caller, tenant, id) in [(&acme, "acme", "r-1"), (&globex, "globex", "r-1"), (&blind, "acme", "r-2")]
    {
        let answered = caller.post("/apply", &body(tenant, id)).await;
        assert_eq!(answered.json["outcome"], "succeeded", "{}", answered.text);
    }
    // What changes nothing is no entry: a repeat, a plan, a call that is refused.
    acme.post("/apply", &body("acme", "r-1")).await;
    acme.post("/plan", &body("acme", "r-3")).await;
    assert_eq!(acme.post("/apply", &body("globex", "r-4")).await.status, 403);
    assert_eq!(admin("dev").post("/plugins/reload", &json!({})).await.status, 200);

    let (of_acme, of_globex) = (
        vec![
            row(["blind", "create", "main", "acme", "r-2"]),
            row(["of-acme", "create", "main", "acme", "r-1"]),
        ],
        vec![row(["of-globex", "create", "main", "globex", "r-1"])],
    );
    assert_eq!(page(&acme.get("/audit").await), of_acme);
    assert_eq!(page(&globex.get("/audit").await), of_globex);
    assert_eq!(page(&acme.get("/audit?tenant=globex").await), Vec::<[String; 5]>::new());
    assert_eq!(page(&acme.get("/audit?actor=blind").await), of_acme[..1]);
    assert_eq!(blind.get("/audit").await.status, 403);
    assert_eq!(admin("dev").get("/audit").await.status, 403);
    let all = page(&admin("ops").get("/audit").await);
    assert_eq!(all[0][..2], ["dev", "reload"]);
    assert_eq!(all[1..], [&of_acme[..1], &of_globex[..], &of_acme[1..]].concat());
    let first = admin("ops").get("/audit?limit=3").await;
    let next = first.json["next"].as_str().unwrap().to_owned();
    assert_eq!(page(&admin("ops").get(&format!("/audit?before={next}")).await), of_acme[1..]);

    // The command line reads the same, beside the host and without it.
    let folder = world.folder.path();
    for _ in 0..2 {
        let said = sutler(folder, &["audit", "--json"]).ok();
        assert!(!said.contains(SETTING), "{said}");
        let list: Vec<Value> = serde_json::from_str(&said).unwrap();
        assert_eq!(entries(&list), all);
        assert_eq!(list[1]["resourceType"], "tool/hostile");
        world.host.stop().await;
    }
    for (option, value, why) in [
        ("--action", "destroy", "--action: \"destroy\" is no action; there are create, "),
        ("--resource-type", "ksml", "--resource-type: "),
        ("--tenant", "AC ME", "--tenant: "),
    ] {
        let said = sutler(folder, &["audit", option, value]).refused();
        assert!(said.contains(why), "{said}");
    }
    let table = sutler(folder, &["audit", "--tenant", "acme", "--actor", "of-acme"]).ok();
    assert!(table.starts_with("TIME ") && table.lines().count() == 2, "{table}");
    assert!(table.contains("acme/prod/orders") && table.contains("op_"), "{table}");
}
